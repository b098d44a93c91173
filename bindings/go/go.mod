module libst/st

go 1.24
