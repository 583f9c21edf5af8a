"""PTX text as data: lexer, parser, and which `.version` and target its instructions need."""
