"""The operators' commands of `changeling`. Each imports what is heavy where it runs."""
