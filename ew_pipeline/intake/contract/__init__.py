"""The contract of the input tables: what is checked, by whom, and where faulty rows go.

``suites``          the suites in ``expectations/``, one JSON file per table, readable by a person
``whole_numbers``   the one expectation Great Expectations lacks
``gx_run``          Great Expectations on one frame; Data Docs
``reading``         a source as a typed DuckDB table, nothing repaired
``faults``          the quarantine file, the words of a rejection
``validate_table``  all of it for a frame at hand: store checks that are imported, flags that are published

Validation rejects or quarantines and never repairs.
"""

from ew_pipeline.intake.contract.faults import ContractRejected
from ew_pipeline.intake.contract.suites import suites_folder
from ew_pipeline.intake.contract.validate import TableReport, validate_table

__all__ = ["ContractRejected", "TableReport", "suites_folder", "validate_table"]
