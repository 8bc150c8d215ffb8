"""The interactive graph view: plain data in, one page without network out."""
