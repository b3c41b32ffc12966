"""The verbs that come in groups: what their command lines take. Each imports what it needs when it runs."""
