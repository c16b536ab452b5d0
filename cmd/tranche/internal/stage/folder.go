package stage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// A stage's folder lies among everything temporary, and names the process that it belongs to in a file. The process holds
// a lock on that file: it ends with the process, however that ends, and no later process of the same number has it.
const (
	folderPrefix = "tranche-stage-"
	ownerFile    = "pid"
)

// makeFolder makes a folder that is this process's own until the file is closed.
func makeFolder() (dir string, owner *os.File, err error) {
	if dir, err = os.MkdirTemp("", folderPrefix); err != nil {
		return "", nil, err
	}
	if err := os.Chmod(dir, 0o755); err != nil { // Postgres may run as another user, who must reach its own folder
		return dir, nil, err
	}
	if owner, err = os.OpenFile(filepath.Join(dir, ownerFile), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return dir, nil, err
	}
	if err := syscall.Flock(int(owner.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return dir, owner, fmt.Errorf("lock %s: %w", owner.Name(), err)
	}
	_, err = owner.WriteString(strconv.Itoa(os.Getpid()) + "\n") // last: an empty file belongs to a process that is about to lock it
	return dir, owner, err
}

// Sweep removes the folders of our own user whose processes were killed before they could. It is no fault if it cannot.
func Sweep() {
	found, _ := filepath.Glob(filepath.Join(os.TempDir(), folderPrefix+"*")) // its pattern is right
	for _, dir := range found {
		if info, err := os.Lstat(dir); err == nil && info.IsDir() && ours(info) {
			_ = sweep(dir)
		}
	}
}

func ours(info os.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(s.Uid) == os.Geteuid()
}

// errAlive says that a folder is in use.
var errAlive = errors.New("its process lives")

// sweep removes a folder, the file that names its process last: what cannot be removed now is found again.
func sweep(dir string) error {
	owner, err := os.OpenFile(filepath.Join(dir, ownerFile), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer owner.Close()
	if err := syscall.Flock(int(owner.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return errAlive
	}
	if info, err := owner.Stat(); err != nil || info.Size() == 0 {
		return errAlive
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == ownerFile {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return os.RemoveAll(dir)
}
