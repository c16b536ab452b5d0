// Command tranche is the one binary of Tranche: the coordinator, the nodes, the demo and the administration.
//
//	main ─▶ internal/cli        what is typed and printed, exit statuses
//	          ├─▶ settings      flag ▶ environment ▶ configuration file
//	          ├─▶ api           calls to a coordinator and to nodes, errors with a hint
//	          ├─▶ manifest      budgets from YAML and JSON files
//	          ├─▶ books         the whole account, read and kept as evidence
//	          └─▶ demo          the walk through everything, on real processes
//	                ├─▶ process this binary as a child
//	                └─▶ proxy   links that can be cut
package main

import (
	"os"

	"tranche/cmd/tranche/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:])) }
