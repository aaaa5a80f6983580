"""Results of other tools in our schema: lm-eval, lighteval, inspect_ai, and tables of numbers.

`discover` finds what a source holds, one module for each format reads it into a `Found`, and
`target` writes that as an evaluation folder. The files come from anywhere: every one is read
within bounds (`bounded`), nothing in it is run, and no name in it becomes a path unchecked.
"""
