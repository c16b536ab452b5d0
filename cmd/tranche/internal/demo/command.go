package demo

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// tranche is how somebody who watches the demo calls this very program: by its name where that leads to it, else by the
// path of the running binary. That of `go run` lies in a temporary folder, which stays for as long as the demo does.
func tranche() string {
	self, err := os.Executable()
	if err != nil {
		return "tranche"
	}
	found, _ := exec.LookPath("tranche") // empty: nowhere
	return called(self, found)
}

// called chooses between the path of this program and what the shell finds under its name.
func called(self, found string) string {
	a, errA := filepath.EvalSymlinks(self)
	b, errB := filepath.EvalSymlinks(found)
	if found != "" && errA == nil && errB == nil && a == b {
		return "tranche"
	}
	if strings.ContainsFunc(self, func(r rune) bool { return strings.ContainsRune(" '\"\\$`&;()<>|*?", r) }) {
		return "'" + strings.ReplaceAll(self, "'", `'\''`) + "'"
	}
	return self
}
