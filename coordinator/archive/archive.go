// Package archive keeps the records of closed terms in a file, once etcd does not keep them any more.
//
// The file has one record a line, as JSON, in the order in which they were moved. It is only appended to, so that any
// program may follow it. A record may stand twice: a coordinator that ended between the append and the delete in etcd moves
// it again. The later one counts.
//
//	{"format":1,"budget":"acme/requests","unit":"requests","term":"2026-05-04T10:00:00Z",…}
//	{"format":1,"budget":"acme/tokens",…}
//
// What a crash tore was never acknowledged, so etcd has it still: a line that ends early is cut off, one that cannot be
// read is passed over. Where each record stands is kept in memory, 32 bytes for each.
package archive

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"tranche/allocation"
	"tranche/coordinator"
)

// File is an archive. It may be used by several goroutines.
type File struct {
	mu      sync.Mutex
	file    *os.File
	size    int64
	places  []place // by key, each once
	names   map[string]*named
	damaged int
}

// named is what all records of one budget share: its name, and what their keys begin with.
type named struct{ budget, prefix string }

// place is where a record stands. There may be millions, so a key is made only where it is asked for.
type place struct {
	of     *named
	term   allocation.Instant
	at     int64
	length int64
}

func (p place) key() string { return coordinator.Closing{Budget: p.of.budget, Term: p.term}.Key() }

// byKey compares as the keys do: no prefix begins with another one, and the terms in them have one length.
func byKey(a, b place) int {
	return cmp.Or(strings.Compare(a.of.prefix, b.of.prefix), cmp.Compare(a.term, b.term))
}

// placeOf is the place of a record that begins at a byte of the file.
func (f *File) placeOf(c coordinator.Closing, at int64, length int) place {
	of := f.names[c.Budget]
	if of == nil {
		key := c.Key()
		of = &named{budget: strings.Clone(c.Budget), prefix: key[:strings.LastIndexByte(key, '/')+1]}
		f.names[of.budget] = of
	}
	return place{of, c.Term, at, int64(length)}
}

// Open opens the file, or makes it. `lock` keeps other processes out.
func Open(name string, lock func(*os.File) error) (*File, error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the archive of closings: %w", err)
	}
	f := &File{file: file, names: map[string]*named{}}
	if err := lock(file); err != nil {
		return nil, errors.Join(fmt.Errorf("another coordinator uses the archive %s; give each its own --closing-archive: %w", name, err), file.Close())
	}
	if err := errors.Join(f.read(), syncFolder(filepath.Dir(name))); err != nil {
		return nil, errors.Join(fmt.Errorf("read the archive %s: %w", name, err), file.Close())
	}
	return f, nil
}

// syncFolder makes the name of a new file durable.
func syncFolder(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, fs.ErrInvalid) {
		return err
	}
	return nil
}

// read finds the records.
func (f *File) read() error {
	var found []place
	for in := bufio.NewReaderSize(f.file, 1<<20); ; {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break // what stands behind the last newline was torn, and is written over
		}
		if err != nil {
			return err
		}
		var c coordinator.Closing
		if json.Unmarshal(line, &c) == nil && c.Budget != "" {
			found = append(found, f.placeOf(c, f.size, len(line)))
		} else {
			f.damaged++
		}
		f.size += int64(len(line))
	}
	f.enter(found)
	return nil
}

// enter adds places that stand behind all others in the file. The list is made anew: a reader may go on with the old one.
func (f *File) enter(found []place) {
	slices.SortStableFunc(found, byKey)
	all := make([]place, 0, len(f.places)+len(found))
	old := f.places
	for i, p := range found {
		if i+1 < len(found) && byKey(found[i+1], p) == 0 {
			continue // of several the last
		}
		n, replaced := slices.BinarySearchFunc(old, p, byKey)
		all = append(append(all, old[:n]...), p)
		if replaced {
			n++
		}
		old = old[n:]
	}
	f.places = append(all, old...)
}

// Append implements coordinator.ClosingArchive.
func (f *File) Append(closings []coordinator.Closing) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.write(closings)
}

// Update implements coordinator.ClosingArchive.
func (f *File) Update(late map[string]coordinator.LateStatement, change func(coordinator.Closing, coordinator.LateStatement) (coordinator.Closing, bool)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var changed []coordinator.Closing
	for _, key := range slices.Sorted(maps.Keys(late)) {
		i, found := find(f.places, key)
		if !found {
			continue
		}
		c, err := f.at(f.places[i])
		if err != nil {
			return err
		}
		if next, more := change(c, late[key]); more {
			changed = append(changed, next)
		}
	}
	if len(changed) == 0 {
		return nil
	}
	return f.write(changed)
}

// find is where a key stands, or would.
func find(places []place, key string) (int, bool) {
	return slices.BinarySearchFunc(places, key, func(p place, key string) int { return strings.Compare(p.key(), key) })
}

// at reads one record.
func (f *File) at(p place) (c coordinator.Closing, err error) {
	line := make([]byte, p.length)
	if _, err = f.file.ReadAt(line, p.at); err == nil {
		err = json.Unmarshal(line, &c)
	}
	if err != nil {
		return c, fmt.Errorf("read the archive of closings at byte %d: %w", p.at, err)
	}
	return c, nil
}

// write appends records.
func (f *File) write(closings []coordinator.Closing) error {
	var text bytes.Buffer
	var added []place
	for _, c := range closings {
		line, err := json.Marshal(c)
		if err != nil {
			return fmt.Errorf("write a closing as JSON: %w", err)
		}
		added = append(added, f.placeOf(c, f.size+int64(text.Len()), len(line)+1))
		text.Write(append(line, '\n'))
	}
	// An append that failed may have left a part of itself.
	err := f.file.Truncate(f.size)
	if err == nil {
		_, err = f.file.WriteAt(text.Bytes(), f.size)
	}
	if err == nil {
		err = f.file.Sync()
	}
	if err != nil {
		return fmt.Errorf("append to the archive of closings: %w", err)
	}
	f.size += int64(text.Len())
	f.enter(added)
	return nil
}

// Page implements coordinator.ClosingArchive.
func (f *File) Page(after string, wanted func(budget string) bool, most int) ([]coordinator.Closing, error) {
	f.mu.Lock()
	places := f.places
	f.mu.Unlock()
	i, found := find(places, after)
	if found {
		i++
	}
	var page []coordinator.Closing
	for _, p := range places[i:] {
		if len(page) == most {
			break
		}
		if !wanted(p.of.budget) {
			continue
		}
		c, err := f.at(p)
		if err != nil {
			return nil, err
		}
		page = append(page, c)
	}
	return page, nil
}

// Damaged is how many lines could not be read when the file was opened.
func (f *File) Damaged() int { return f.damaged }

// Close gives the file free.
func (f *File) Close() error { return f.file.Close() }
