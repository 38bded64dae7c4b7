(() => {
  "use strict";
  const table = document.getElementById("all");
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((d) => { d.open = true; }));
  if (!table) return;
  const body = table.tBodies[0];
  const rows = Array.from(body.rows);
  const store = document.getElementById("store");
  const text = document.getElementById("text");
  const shown = document.getElementById("shown");

  const filter = () => {
    const wanted = text.value.trim().toLowerCase();
    let number = 0;
    for (const row of rows) {
      const keep = (!store.value || row.cells[1].textContent === store.value)
        && (!wanted || row.textContent.toLowerCase().includes(wanted));
      row.hidden = !keep;
      number += keep;
    }
    document.body.classList.toggle("filtered", number < rows.length);
    shown.textContent = number.toLocaleString("en") + " of " + rows.length.toLocaleString("en") + " shown";
  };
  store.addEventListener("change", filter);
  text.addEventListener("input", filter);

  const value = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.v === undefined ? cell.textContent.trim() : Number(cell.dataset.v);
  };
  table.querySelectorAll("thead th").forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      table.querySelectorAll("th[aria-sort]").forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const compare = (a, b) => typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true });
      rows.sort((a, b) => (up ? 1 : -1) * compare(value(a, column), value(b, column)));
      body.append(...rows);
    });
  });

  // report.html#store=S012 opens the list of one store.
  const follow = () => {
    if (!location.hash.startsWith("#store=")) return;
    let wanted;
    try { wanted = decodeURIComponent(location.hash.slice(7)); } catch { return; }
    if (!Array.from(store.options).some((option) => option.value === wanted)) return;
    store.value = wanted;
    text.value = "";
    filter();
    document.getElementById("checks").scrollIntoView();
  };
  addEventListener("hashchange", follow);
  filter();
  follow();
})();
