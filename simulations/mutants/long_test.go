//go:build long

package mutants

import "testing"

// Every one of them is caught.
func TestAll(t *testing.T) { huntAll(t, nil) }
