module libst/bench

go 1.24

require libst/st v0.0.0

replace libst/st => ../../../bindings/go
