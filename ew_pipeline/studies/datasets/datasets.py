"""The public datasets that `ew convert` knows: whose they are, under which terms, and how they are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Dataset:
    """One dataset. Nothing of it is handed out with this project.

    Attributes
    ----------
    publisher : who publishes it, and where.
    terms : under which conditions, as far as we know; the publisher's words decide.
    file : what the user passes.
    reader : "module:function" of this package, loaded when it is used.
    evaluate : what to give `ew evaluate` beside the converted file.
    """

    title: str
    publisher: str
    terms: str
    file: str
    reader: str
    evaluate: str = ""


DATASETS: Mapping[str, Dataset] = {
    "freshretailnet": Dataset(
        "FreshRetailNet-50K: hourly sales of fresh products, with the hours out of stock",
        "Dingdong-Inc, on Hugging Face (Dingdong-Inc/FreshRetailNet-50K)",
        "CC-BY-4.0",
        "the parquet file of one split",
        "freshretailnet:read_freshretailnet",
        "--truth {to} --truth-column oos_frac --truth-threshold 0.5",
    ),
    "m5": Dataset(
        "M5 Forecasting: daily sales of 3,049 products in ten Walmart stores",
        "Walmart and the University of Nicosia, on Kaggle (m5-forecasting-accuracy)",
        "the rules of the competition, to be accepted on Kaggle",
        "the folder with calendar.csv and sales_train_evaluation.csv",
        "m5:read_m5",
    ),
    "breakfast": Dataset(
        "Breakfast at the Frat: 156 weeks of four categories in 77 stores",
        "dunnhumby, on its source files page",
        "dunnhumby's terms of use for its source files",
        "the sheet dh Transaction Data of the workbook, saved as CSV",
        "breakfast:read_breakfast",
        "--zero-rule inferred",
    ),
    "dominicks": Dataset(
        "Dominick's Finer Foods: weekly scanner data of about 100 stores, 1989 on",
        "Kilts Center for Marketing, University of Chicago Booth School of Business",
        "academic research only, with acknowledgement of the Kilts Center",
        "a movement file as CSV, such as wana.csv",
        "dominicks:read_dominicks",
    ),
}
