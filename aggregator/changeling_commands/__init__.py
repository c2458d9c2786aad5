"""The console script `changeling`: the commands of the server and of the curator, in one table."""
