// Package ndjson is the archive of closing records as files: one JSON document a line, one file a day.
//
//	FOLDER/closings-2026-05-04.ndjson
//
// A line is durable when Append returns: it was synced, and so was the folder when the file was made. A process that ends
// in between leaves a line that is cut off; the next Append ends it, and Read passes over it and says so. Several
// replicas may share a folder if each appends in whole lines, as a local file system has it; over a network each is better
// given its own.
package ndjson

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// maxLine bounds a line that is read.
const maxLine = 4 << 20

// Archive appends to a folder.
type Archive struct {
	folder string
	now    func() time.Time
	mu     sync.Mutex
}

// Open makes the folder if there is none, and makes sure that it can be written to.
func Open(folder string, now func() time.Time) (*Archive, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of closing records: %w", err)
	}
	probe, err := os.CreateTemp(folder, ".probe-*")
	if err != nil {
		return nil, fmt.Errorf("write to the folder of closing records: %w", err)
	}
	return &Archive{folder: folder, now: now}, errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// Append implements coordinator.Archive.
func (a *Archive) Append(ctx context.Context, lines [][]byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	path := filepath.Join(a.folder, "closings-"+a.now().UTC().Format(time.DateOnly)+".ndjson")
	_, err := os.Stat(path)
	made := errors.Is(err, os.ErrNotExist)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	err = write(f, lines)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if made {
		return syncFolder(a.folder)
	}
	return nil
}

func write(f *os.File, lines [][]byte) error {
	var text bytes.Buffer
	whole, err := endsWhole(f)
	if err != nil {
		return err
	}
	if !whole {
		text.WriteByte('\n')
	}
	for _, line := range lines {
		if bytes.ContainsRune(line, '\n') {
			return errors.New("a line holds the end of a line")
		}
		text.Write(line)
		text.WriteByte('\n')
	}
	if _, err := f.Write(text.Bytes()); err != nil {
		return err
	}
	return f.Sync()
}

// endsWhole says whether the last line has its end.
func endsWhole(f *os.File) (bool, error) {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return true, err
	}
	last := make([]byte, 1)
	if _, err := f.ReadAt(last, info.Size()-1); err != nil {
		return false, err
	}
	return last[0] == '\n', nil
}

func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Read hands every line of a folder to take, oldest file first. take says whether it could read the line; broken is how
// many it could not.
func Read(folder string, take func(line []byte) bool) (broken int, err error) {
	names, err := filepath.Glob(filepath.Join(folder, "closings-*.ndjson"))
	if err != nil {
		return 0, err
	}
	if _, err := os.Stat(folder); err != nil {
		return 0, fmt.Errorf("read the folder of closing records: %w", err)
	}
	slices.Sort(names)
	for _, name := range names {
		n, err := readFile(name, take)
		if broken += n; err != nil {
			return broken, fmt.Errorf("read %s: %w", name, err)
		}
	}
	return broken, nil
}

func readFile(name string, take func(line []byte) bool) (broken int, err error) {
	f, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	lines := bufio.NewScanner(io.Reader(f))
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	for lines.Scan() {
		if line := lines.Bytes(); len(line) > 0 && !take(line) {
			broken++
		}
	}
	return broken, lines.Err()
}
