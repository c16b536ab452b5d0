//go:build unix

package cluster

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// settingsFile is included last by postgresql.conf. It is no command line, so
// that `alter system` and a reload can still change a setting later.
const settingsFile = "tranche.conf"

var settingName = regexp.MustCompile(`^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)?$`)

// mayNotBeOff are the settings without which a commit that was answered can be
// lost: the owner would then forget what it has spent.
var mayNotBeOff = []string{"fsync", "full_page_writes", "synchronous_commit"}

// ours cannot be changed through Options.Settings: URL relies on them.
var ours = []string{"port", "listen_addresses", "unix_socket_directories"}

func defaults() map[string]string {
	return map[string]string{
		"fsync":              "on",
		"full_page_writes":   "on",
		"synchronous_commit": "on",
		"max_connections":    "100",
		"shared_buffers":     "128MB",
		"timezone":           "UTC",
		"log_timezone":       "UTC",
		"lc_messages":        "C", // retry reads the log
		"logging_collector":  "off",
		"log_destination":    "stderr",
	}
}

// checkSettings refuses what would break a promise of this package.
func checkSettings(extra map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		value := extra[name]
		switch {
		case !settingName.MatchString(name):
			return fmt.Errorf("setting %q: not a name of a Postgres setting (lower case)", name)
		case strings.ContainsAny(value, "\r\n\x00"):
			return fmt.Errorf("setting %s: its value holds a line break", name)
		case slices.Contains(ours, name):
			return fmt.Errorf("setting %s: chosen by Options, leave it out of Settings", name)
		case slices.Contains(mayNotBeOff, name) && value != "on":
			return fmt.Errorf("setting %s = %s: must stay on, or commits that were answered can be lost", name, value)
		}
	}
	return nil
}

// settingsText is the whole settings file.
func settingsText(port int, extra map[string]string) string {
	all := defaults()
	maps.Copy(all, extra)
	all["port"] = strconv.Itoa(port)
	all["listen_addresses"] = "127.0.0.1"
	all["unix_socket_directories"] = "" // a socket path may have 100 bytes only; a port always fits
	var text strings.Builder
	text.WriteString("# Written anew at every start. Use `alter system` for changes that last.\n")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&text, "%s = '%s'\n", name, strings.ReplaceAll(all[name], "'", "''"))
	}
	return text.String()
}

// writeSettings writes the settings file into the data directory and makes sure
// that postgresql.conf includes it.
func writeSettings(data string, who account, port int, extra map[string]string) error {
	ownFile := filepath.Join(data, settingsFile)
	if err := who.writeFile(ownFile, []byte(settingsText(port, extra))); err != nil {
		return fmt.Errorf("write settings: %w", err)
	}
	main := filepath.Join(data, "postgresql.conf")
	text, err := os.ReadFile(main)
	if err != nil {
		return fmt.Errorf("read settings: %w", err)
	}
	include := "include '" + settingsFile + "'\n"
	if strings.HasSuffix(string(text), include) {
		return nil
	}
	if err := who.writeFile(main, append(text, []byte("\n"+include)...)); err != nil {
		return fmt.Errorf("write settings: %w", err)
	}
	return nil
}
