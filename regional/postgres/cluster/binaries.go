package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// BinariesVariable names the environment variable that decides which Postgres
// is used. Its value is the folder that holds postgres and initdb.
const BinariesVariable = "TRANCHE_POSTGRES_BIN"

// ErrNotInstalled says that no folder with a Postgres server was found.
var ErrNotInstalled = errors.New("no Postgres server found")

const howToInstall = `install the server package (Debian, Ubuntu: apt-get install postgresql; ` +
	`Fedora: dnf install postgresql-server; macOS: brew install postgresql), ` +
	`or set ` + BinariesVariable + ` to the folder that holds postgres and initdb`

// Binaries is where a Postgres server is installed.
type Binaries struct {
	// Dir holds both programs, with symbolic links resolved.
	Dir string
	// Postgres and Initdb are absolute paths.
	Postgres, Initdb string
}

// places is where find looks, in this order.
type places struct {
	chosen   string                // the folder the user named, or empty
	pgConfig func() string         // what pg_config calls its bindir, or empty
	path     []string              // the folders of PATH
	patterns []string              // folders of distributions, with a * for the version
	glob     func(string) []string // expands one pattern
}

// Find returns the Postgres server to use: the folder named by
// TRANCHE_POSTGRES_BIN; else the one pg_config names; else one on PATH; else the
// highest version in the usual folders of distributions. A folder counts only
// if both postgres and initdb are in it, for client packages install pg_config
// too. A wrong TRANCHE_POSTGRES_BIN is an error, never passed over. If nothing
// is found the error is ErrNotInstalled and says what to install.
func Find() (Binaries, error) {
	return find(places{
		chosen:   os.Getenv(BinariesVariable),
		pgConfig: askPgConfig,
		path:     filepath.SplitList(os.Getenv("PATH")),
		patterns: []string{
			"/usr/lib/postgresql/*/bin",
			"/usr/pgsql-*/bin",
			"/opt/homebrew/opt/postgresql@*/bin",
			"/opt/homebrew/bin",
			"/usr/local/opt/postgresql@*/bin",
			"/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",
			"/Applications/Postgres.app/Contents/Versions/*/bin",
		},
		glob: func(pattern string) []string {
			found, _ := filepath.Glob(pattern) // its only error is a malformed pattern
			return found
		},
	})
}

func find(p places) (Binaries, error) {
	if p.chosen != "" {
		if b, ok := serverIn(p.chosen); ok {
			return b, nil
		}
		return Binaries{}, fmt.Errorf("%w: %s is %s, which does not hold both postgres and initdb; %s",
			ErrNotInstalled, BinariesVariable, p.chosen, howToInstall)
	}
	folders := append([]string{p.pgConfig()}, p.path...)
	for _, pattern := range p.patterns {
		folders = append(folders, highestFirst(p.glob(pattern))...)
	}
	for _, folder := range folders {
		if b, ok := serverIn(folder); ok {
			return b, nil
		}
	}
	return Binaries{}, fmt.Errorf("%w; %s", ErrNotInstalled, howToInstall)
}

func askPgConfig() string {
	out, err := exec.Command("pg_config", "--bindir").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// serverIn resolves links first: a lone `postgres` linked into a folder of PATH
// lies next to its initdb where it really lives.
func serverIn(folder string) (Binaries, bool) {
	if folder == "" {
		return Binaries{}, false
	}
	real, err := filepath.EvalSymlinks(filepath.Join(folder, "postgres"))
	if err != nil {
		return Binaries{}, false
	}
	dir, err := filepath.Abs(filepath.Dir(real))
	if err != nil {
		return Binaries{}, false
	}
	b := Binaries{Dir: dir, Postgres: filepath.Join(dir, "postgres"), Initdb: filepath.Join(dir, "initdb")}
	return b, executable(b.Postgres) && executable(b.Initdb)
}

func executable(file string) bool {
	info, err := os.Stat(file)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// highestFirst orders folders such as /usr/lib/postgresql/15/bin by the numbers
// in them, so that 15 goes before 9.6.
func highestFirst(folders []string) []string {
	sorted := slices.Clone(folders)
	slices.SortStableFunc(sorted, func(a, b string) int {
		return slices.Compare(numbersIn(b), numbersIn(a))
	})
	return sorted
}

func numbersIn(s string) []int {
	var numbers []int
	digits := strings.FieldsFunc(s, func(r rune) bool { return r < '0' || r > '9' })
	for _, d := range digits {
		if n, err := strconv.Atoi(d); err == nil {
			numbers = append(numbers, n)
		}
	}
	return numbers
}
