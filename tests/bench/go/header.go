package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"syscall"
)

type entry struct {
	DType   string   `json:"dtype"`
	Shape   []uint64 `json:"shape"`
	Offsets []uint64 `json:"data_offsets"`
}

func mapFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return syscall.Mmap(int(f.Fd()), 0, int(info.Size()), syscall.PROT_READ, syscall.MAP_PRIVATE)
}

// readHeader is what a Go program does without libst: map the file, give the header to encoding/json, and see that the
// tensors lie one after the other and fill the file.
func readHeader(path string) (map[string]entry, error) {
	data, err := mapFile(path)
	if err != nil {
		return nil, err
	}
	defer syscall.Munmap(data)
	if len(data) < 8 || binary.LittleEndian.Uint64(data) > uint64(len(data)-8) {
		return nil, fmt.Errorf("%s: the header is cut off", path)
	}
	end := 8 + binary.LittleEndian.Uint64(data)
	var entries map[string]entry
	if err := json.Unmarshal(data[8:end], &entries); err != nil {
		return nil, err
	}
	delete(entries, "__metadata__")
	spans := make([][]uint64, 0, len(entries))
	for name, e := range entries {
		if len(e.Offsets) != 2 {
			return nil, fmt.Errorf("%s: %q has no place", path, name)
		}
		spans = append(spans, e.Offsets)
	}
	slices.SortFunc(spans, func(a, b []uint64) int { return int(a[0]) - int(b[0]) })
	at := uint64(0)
	for _, span := range spans {
		if span[0] != at || span[1] < at {
			return nil, fmt.Errorf("%s: a hole or an overlap at %d", path, at)
		}
		at = span[1]
	}
	if at != uint64(len(data))-end {
		return nil, fmt.Errorf("%s: the tensors do not fill the file", path)
	}
	return entries, nil
}

func names(entries map[string]entry) []string {
	all := make([]string, 0, len(entries))
	for name := range entries {
		all = append(all, name)
	}
	return all
}
