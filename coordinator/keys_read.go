package coordinator

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"tranche/allocation"
)

// keyName is what stands behind the kind of a key: "regions/us-east" names us-east.
func keyName(key string) string {
	_, name, _ := strings.Cut(strings.TrimPrefix(key, Root), "/")
	return name
}

// parseLedgerKey reads what ledgerKey wrote.
func parseLedgerKey(key string) (budget string, term allocation.Instant, err error) {
	escaped, digits, _ := strings.Cut(keyName(key), "/")
	if budget, err = url.PathUnescape(escaped); err != nil {
		return "", 0, fmt.Errorf("read key %s: %w", key, err)
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return "", 0, fmt.Errorf("read key %s: %w", key, err)
	}
	return budget, allocation.Instant(int64(n - 1<<62)), nil
}

func regionKey(name string) string  { return regionPrefix + name }
func contactKey(name string) string { return contactPrefix + name }
func rebalanceKey(id string) string { return rebalancePrefix + id }
func planKey(id string) string      { return planPrefix + id }
func tokenKey(name string) string   { return tokenPrefix + name }
func kindOf(key string) (kind string) {
	kind, _, _ = strings.Cut(strings.TrimPrefix(key, Root), "/")
	return kind
}
