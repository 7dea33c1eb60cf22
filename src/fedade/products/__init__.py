"""What runs and suites leave for people: tables, figures, pages."""
