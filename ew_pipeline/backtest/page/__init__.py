"""The evaluation page: a backtest or a published week as one self-contained file."""
