"""The week's report: one typed content, rendered as a page, as Markdown and as lines for the console.

content (what there is to say) -> html (the page, with plots) | summary (Markdown, lines)
"""

from ew_pipeline.outputs.report.html import write_report
from ew_pipeline.outputs.report.summary import summary_lines, summary_markdown

__all__ = ["summary_lines", "summary_markdown", "write_report"]
