//go:build unix

package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// superuser is the role that initdb makes and that URL names.
const superuser = "postgres"

// layout is where the parts of a cluster lie.
type layout struct {
	dir       string
	temporary bool // made by us, removed at Stop
}

func (l layout) data() string     { return filepath.Join(l.dir, "data") }
func (l layout) unready() string  { return filepath.Join(l.dir, "data.unready") }
func (l layout) password() string { return filepath.Join(l.dir, "password") }
func (l layout) log() string      { return filepath.Join(l.dir, "postgres.log") }

// prepareDir makes the folder, if need be, and hands it to the account.
func prepareDir(dir string, who account) (layout, error) {
	l := layout{dir: dir}
	if dir == "" {
		made, err := os.MkdirTemp("", "tranche-postgres-")
		if err != nil {
			return l, err
		}
		l = layout{dir: made, temporary: true}
	}
	absolute, err := filepath.Abs(l.dir)
	if err != nil {
		return l, err
	}
	l.dir = absolute
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return l, err
	}
	if err := who.reach(l.dir); err != nil {
		return l, err
	}
	return l, who.own(l.dir)
}

// initialize makes the data directory unless it is there, and returns the
// superuser's password. The data directory gets its name last: a crash before
// that leaves a folder that the next start throws away.
func initialize(ctx context.Context, with Binaries, who account, l layout) (string, error) {
	if _, err := os.Stat(l.data()); err == nil {
		return readPassword(l)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if err := os.RemoveAll(l.unready()); err != nil {
		return "", err
	}
	password := rand.Text()
	if err := who.writeFile(l.password(), []byte(password+"\n")); err != nil {
		return "", fmt.Errorf("write password: %w", err)
	}
	if err := runInitdb(ctx, with, who, l); err != nil {
		return "", err
	}
	if err := os.Rename(l.unready(), l.data()); err != nil {
		return "", fmt.Errorf("name the data directory: %w", err)
	}
	return password, nil
}

func readPassword(l layout) (string, error) {
	text, err := os.ReadFile(l.password())
	if err != nil {
		return "", fmt.Errorf("read the password of the data directory in %s: %w", l.dir, err)
	}
	return strings.TrimSpace(string(text)), nil
}

func runInitdb(ctx context.Context, with Binaries, who account, l layout) error {
	args := []string{
		"--pgdata", l.unready(), "--username", superuser,
		"--auth", "scram-sha-256", "--pwfile", l.password(),
		"--encoding", "UTF8", "--locale", "C",
	}
	if l.temporary {
		args = append(args, "--no-sync") // nobody will look for it after a power cut
	}
	output, err := openLog(l.log(), who)
	if err != nil {
		return err
	}
	defer output.Close()
	cmd := exec.Command(with.Initdb, args...)
	child, err := launch(cmd, who, l.dir, output, killWithParent)
	if err != nil {
		return fmt.Errorf("start initdb: %w", err)
	}
	select {
	case <-child.ended:
	case <-ctx.Done():
		child.kill()
		<-child.ended
		return fmt.Errorf("run initdb: %w", ctx.Err())
	}
	if child.err != nil {
		return fmt.Errorf("run initdb: %w%s", child.err, logTail(l.log(), 0))
	}
	return nil
}
