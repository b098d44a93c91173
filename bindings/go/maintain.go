package st

// #include "bridge.h"
import "C"

import "context"

// Verify checks a file against every rule of the format and reads all its bytes once. It answers the first error found;
// WithReport tells of each.
func Verify(path string, opts ...VerifyOption) error {
	return VerifyContext(context.Background(), path, opts...)
}

// VerifyContext is Verify that ends with the context.
func VerifyContext(ctx context.Context, path string, opts ...VerifyOption) error {
	config := verifyConfig{}
	C.st_verify_options_init(&config.c, C.sizeof_st_verify_options)
	for _, o := range opts {
		o.toVerify(&config)
	}
	C.stgo_hook_verify(&config.c)
	paths := append([]string{path}, config.deltas...)
	return withPaths(ctx, "verify", paths, &config.hooks, func(p []*C.char) C.st_status {
		layers := newPaths(p[1:])
		defer layers.free()
		return C.stgo_verify(p[0], &config.c, layers.c, C.uint64_t(layers.n))
	})
}

// Recover finishes or drops what crashed writers left beside a file, as Open does. It may be called at any time, again,
// and by many processes. How long it may wait for locks, WithLockTimeout says.
func Recover(path string, opts ...RecoverOption) error {
	config := recoverConfig{}
	C.st_recover_options_init(&config.c, C.sizeof_st_recover_options)
	for _, o := range opts {
		o.toRecover(&config)
	}
	C.stgo_hook_recover(&config.c)
	return withPath(context.Background(), "recover", path, &config.hooks, func(p *C.char) C.st_status {
		return C.st_recover_with(p, &config.c)
	})
}
