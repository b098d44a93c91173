"""Every way to write tensors, each as write(path, tensors) that leaves a file of these; `path` may be there already."""

import libst
import numpy as np


def _old(path, tensors, form_of):
    """A file of the same names; form_of: which (dtype, shape) each is to have."""
    old = {}
    for name, value in tensors.items():
        dtype, shape, nbytes = form_of(value)
        old[name] = libst.Packed(dtype, shape, np.zeros(nbytes, np.uint8))
    libst.save(path, old)


def save(path, tensors, form_of):
    libst.save(path, tensors)


def writer(path, tensors, form_of):
    with libst.writer(path) as w:
        for name, value in tensors.items():
            w.add(name, value)


def update(path, tensors, form_of):
    _old(path, tensors, form_of)
    with libst.open(path, "r+") as f:
        for name, value in tensors.items():
            f.update(name, value)


def transaction(path, tensors, form_of, **options):
    _old(path, tensors, form_of)
    with libst.open(path, "r+") as f, f.transaction(**options) as t:
        for name, value in tensors.items():
            t.update(name, value)


def borrowing(path, tensors, form_of):
    transaction(path, tensors, form_of, copy=False)


def put(path, tensors, form_of):
    libst.save(path, {})
    with libst.open(path, "r+") as f, f.transaction() as t:
        for name, value in tensors.items():
            t.put(name, value)


WAYS = [save, writer, update, transaction, borrowing, put]
