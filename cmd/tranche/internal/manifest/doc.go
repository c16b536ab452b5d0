// Package manifest reads declared budgets from files and folders: YAML, several documents to a file, or JSON, several
// values to a file. It is a door: what is wrong is told with file, line, field and fix, all of it at once, and nothing is
// guessed. YAML is turned into JSON and read by allocation.ParseBudget, so that both forms obey the same rules.
package manifest
