"""What jobs make of records: functions from DataFrame to DataFrame, which know no flags, files or output."""
