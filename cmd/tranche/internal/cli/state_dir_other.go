//go:build !unix

package cli

import "os"

// lockFile locks nothing here: each coordinator must be given a folder of its own.
func lockFile(*os.File) error { return nil }
