//go:build !linux

package embedded

import "os/exec"

// tieToParent cannot be had here: a killed parent leaves its members running.
func tieToParent(*exec.Cmd) {}

// awaitStopped cannot be had here; SIGSTOP is obeyed at once or nearly so.
func awaitStopped(int) {}
