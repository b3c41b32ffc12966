"""Functions from DataFrame to DataFrame that jobs use. They know no flags, files or output."""
