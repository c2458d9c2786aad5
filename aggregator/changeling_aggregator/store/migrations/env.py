"""What Alembic runs for `migrating`: the migrations between two versions, in the transaction that it was given."""

from alembic import context

context.configure(connection=context.config.attributes["connection"], render_as_batch=True, transactional_ddl=True)
context.run_migrations()
