"""Tables, figures and the report page; all of them read traces only."""
