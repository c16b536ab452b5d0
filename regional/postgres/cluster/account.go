//go:build unix

package cluster

import (
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is the operating system user that Postgres runs as. The zero value is
// the user we are.
type account struct {
	name     string
	uid, gid uint32
	other    bool // not the user we are
}

// chooseAccount returns ourselves, or, because Postgres refuses to run as root,
// the user postgres, else nobody.
func chooseAccount() (account, error) {
	if os.Geteuid() != 0 {
		return account{}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		found, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(found.Uid, 10, 32)
		if err != nil {
			continue
		}
		gid, err := strconv.ParseUint(found.Gid, 10, 32)
		if err != nil {
			continue
		}
		return account{name: name, uid: uint32(uid), gid: uint32(gid), other: true}, nil
	}
	return account{}, fmt.Errorf("choose a user for Postgres: it refuses to run as root and there is no user postgres or nobody")
}

// credential makes a child run as the account. Nil is: as ourselves.
func (a account) credential() *syscall.Credential {
	if !a.other {
		return nil
	}
	return &syscall.Credential{Uid: a.uid, Gid: a.gid}
}

// own hands a file or folder that we made to the account.
func (a account) own(path string) error {
	if !a.other {
		return nil
	}
	return os.Chown(path, int(a.uid), int(a.gid))
}

// writeFile replaces the file as a whole: a crash in between leaves the old one.
func (a account) writeFile(path string, content []byte) error {
	part := path + ".part"
	if err := os.WriteFile(part, content, 0o600); err != nil {
		return err
	}
	if err := a.own(part); err != nil {
		return err
	}
	return os.Rename(part, path)
}

// reach reports the first folder above dir that the account may not pass
// through. Postgres would otherwise only say that its own folder is missing.
func (a account) reach(dir string) error {
	if !a.other {
		return nil
	}
	for folder := filepath.Dir(dir); ; folder = filepath.Dir(folder) {
		info, err := os.Stat(folder)
		if err != nil {
			return err
		}
		if !a.mayPass(info) {
			return fmt.Errorf("reach %s: we are root, so Postgres runs as %s, and %s may not enter %s; "+
				"choose a folder that it may reach, such as one below %s", dir, a.name, a.name, folder, os.TempDir())
		}
		if folder == filepath.Dir(folder) {
			return nil
		}
	}
}

func (a account) mayPass(folder fs.FileInfo) bool {
	stat, ok := folder.Sys().(*syscall.Stat_t)
	if !ok {
		return true // let Postgres find out
	}
	switch mode := folder.Mode().Perm(); {
	case stat.Uid == a.uid:
		return mode&0o100 != 0
	case stat.Gid == a.gid:
		return mode&0o010 != 0
	default:
		return mode&0o001 != 0
	}
}
