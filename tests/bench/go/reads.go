package main

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"libst/st"
)

// mapped is a file as a Go program reads it without libst: mapped, its header in a map of Go's.
type mapped struct {
	entries map[string]entry
	data    []byte
}

func openMapped(path string) (*mapped, error) {
	entries, err := readHeader(path)
	if err != nil {
		return nil, err
	}
	all, err := mapFile(path)
	if err != nil {
		return nil, err
	}
	return &mapped{entries, all[8+binary.LittleEndian.Uint64(all):]}, nil
}

func (m *mapped) info(name string) (entry, error) {
	e, found := m.entries[name]
	if !found {
		return entry{}, fmt.Errorf("no tensor %q", name)
	}
	return e, nil
}

func (m *mapped) view(name string) (entry, []byte, error) {
	e, err := m.info(name)
	if err != nil {
		return entry{}, nil, err
	}
	return e, m.data[e.Offsets[0]:e.Offsets[1]], nil
}

func shuffled(count int) []string {
	all := make([]string, count)
	for i := range all {
		all[i] = fmt.Sprintf("layers.%d.weight", i)
	}
	rand.Shuffle(count, func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

func sum(data []byte) (total uint64) {
	for _, b := range data {
		total += uint64(b)
	}
	return total
}

// shot reads each of count tensors once, in random order, and prints "NANOSECONDS SUM": the sum of all bytes by another
// round, which is not timed. ROW-again is a third round of ROW.
func shot(way, row, path string, count int) {
	all := shuffled(count)
	row, again := strings.CutSuffix(row, "-again")
	var buffer []byte
	if strings.HasSuffix(row, "into") {
		buffer = slices.Repeat([]byte{1}, int(must(os.Stat(path)).Size())/count) // no tensor is larger
	}
	rows, look := map[string]func(path string, buffer []byte) (map[string]func(string) []byte, func(string) []byte){
		"libst": libstRows, "mmap": mappedRows, "pread": preadRows,
	}[way](path, buffer)
	one := rows[row]
	round := func() {
		if row == "names" {
			seen += len(one(""))
			return
		}
		for _, name := range all {
			seen += len(one(name))
		}
	}
	if again {
		round()
		round()
	}
	begin := time.Now()
	round()
	took := time.Since(begin)
	var total uint64
	for _, name := range all {
		total += sum(look(name))
	}
	fmt.Println(took.Nanoseconds(), total)
}

func libstRows(path string, buffer []byte) (rows map[string]func(name string) []byte, look func(string) []byte) {
	file := must(st.Open(path, nil))
	return map[string]func(name string) []byte{
		"view":     func(name string) []byte { return must(file.View(name)).Data },
		"info":     func(name string) []byte { seen += len(must(file.Info(name)).Shape); return nil },
		"get":      func(name string) []byte { return must(file.Get(name)).Data },
		"readinto": func(name string) []byte { return buffer[:must(file.ReadInto(name, buffer))] },
		"copy":     func(name string) []byte { return append([]byte(nil), must(file.View(name)).Data...) },
		"copyinto": func(name string) []byte { return buffer[:copy(buffer, must(file.View(name)).Data)] },
		"names":    func(string) []byte { seen += len(must(file.Names())); return nil },
	}, func(name string) []byte { return must(file.Get(name)).Data }
}

func mappedRows(path string, buffer []byte) (rows map[string]func(name string) []byte, look func(string) []byte) {
	file := must(openMapped(path))
	view := func(name string) []byte {
		_, data, err := file.view(name)
		return must(data, err)
	}
	rows = map[string]func(name string) []byte{
		"view":     view,
		"info":     func(name string) []byte { seen += len(must(file.info(name)).Shape); return nil },
		"get":      func(name string) []byte { return append([]byte(nil), view(name)...) },
		"readinto": func(name string) []byte { return buffer[:copy(buffer, view(name))] },
		"names":    func(string) []byte { seen += len(names(file.entries)); return nil },
	}
	rows["copy"], rows["copyinto"] = rows["get"], rows["readinto"]
	return rows, view
}

// preadRows know the header as the mapped reader does, and read from the file.
func preadRows(path string, buffer []byte) (rows map[string]func(name string) []byte, look func(string) []byte) {
	mapped := must(openMapped(path))
	file := must(os.Open(path))
	start := must(file.Stat()).Size() - int64(len(mapped.data))
	read := func(name string, into func(size uint64) []byte) []byte {
		e := must(mapped.info(name))
		data := into(e.Offsets[1] - e.Offsets[0])
		must(file.ReadAt(data, start+int64(e.Offsets[0])))
		return data
	}
	get := func(name string) []byte { return read(name, func(size uint64) []byte { return make([]byte, size) }) }
	return map[string]func(name string) []byte{
		"get":      get,
		"readinto": func(name string) []byte { return read(name, func(size uint64) []byte { return buffer[:size] }) },
	}, get
}
