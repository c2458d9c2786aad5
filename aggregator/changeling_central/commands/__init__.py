"""A curator's other commands: `changeling count`, of a stream, and `changeling ask`, of one table."""
