"""Found on PYTHONPATH before the stock package. Importers get what `install` leaves in sys.modules."""

from libst import compat

compat.install()
