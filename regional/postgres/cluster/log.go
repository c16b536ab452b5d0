//go:build unix

package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

const (
	// logBound is the size past which a start sets the log aside, so that a
	// `node --dev` that lives for months keeps two logs of this size at most
	// plus what one run writes.
	logBound = 16 << 20
	// tailBound is how much of the log an error carries, in bytes.
	tailBound = 2 << 10
)

// openLog opens the log for appending.
func openLog(path string, who account) (*os.File, error) {
	info, err := os.Stat(path)
	if err == nil && info.Size() > logBound {
		err = os.Rename(path, path+".1")
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("set the log aside: %w", err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	if err := who.own(path); err != nil {
		file.Close()
		return nil, fmt.Errorf("open log: %w", err)
	}
	return file, nil
}

// logSince returns what was written to the log after its first `from` bytes,
// at most the last tailBound bytes of it.
func logSince(path string, from int64) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return ""
	}
	if from > info.Size() {
		from = 0 // the log was set aside meanwhile
	}
	from = max(from, info.Size()-tailBound)
	tail := make([]byte, info.Size()-from)
	n, _ := file.ReadAt(tail, from) // a short read is a shorter tail
	return strings.TrimSpace(string(tail[:n]))
}

// logTail is the end of the log as the end of an error message.
func logTail(path string, from int64) string {
	tail := logSince(path, from)
	if tail == "" {
		return fmt.Sprintf(" (nothing in %s)", path)
	}
	return fmt.Sprintf("; %s ends with:\n%s", path, tail)
}

func logSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}
