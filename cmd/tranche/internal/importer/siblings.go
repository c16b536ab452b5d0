package importer

import (
	"fmt"
	"strings"

	"tranche/allocation"
)

// Envoy takes the most exact of the descriptors of one level: an entry with the request's value, if there is one, and that
// with the key alone only if there is none. A template has no exceptions. So a key alone beside values of the same key is
// imported only where counting those values too changes nothing: each of them has a limit in the same window that is no
// higher, and is enforced if the other is, so that it always refuses first.

// valuesBeside are the descriptors of a level that name values of a key.
func valuesBeside(level []any, key string) (values []map[string]any) {
	for _, one := range level {
		if fields, ok := one.(map[string]any); ok && fmt.Sprint(fields["key"]) == key && valueOf(fields) != "" {
			values = append(values, fields)
		}
	}
	return values
}

func valueOf(fields map[string]any) string {
	if v, given := fields["value"]; given && v != nil {
		return fmt.Sprint(v)
	}
	return ""
}

// covered says whether counting the values too changes nothing. If not, it names the first that it would change.
func covered(alone map[string]any, values []map[string]any) (which string, ok bool) {
	if _, below := alone["descriptors"].([]any); below && len(values) > 0 {
		return valueOf(values[0]), false // what is below the key alone is not for those values either
	}
	most, window, limited := limitOf(alone)
	if !limited {
		return "", true // nothing is made of it
	}
	for _, v := range values {
		n, w, has := limitOf(v)
		looser := v["shadow_mode"] == true && alone["shadow_mode"] != true
		if !has || n > most || !w.Equal(window) || looser || strings.HasSuffix(valueOf(v), "*") {
			return valueOf(v), false
		}
	}
	return "", true
}

// limitOf is a descriptor's own limit; false if it has none that means anything here.
func limitOf(fields map[string]any) (n int64, w allocation.Window, ok bool) {
	limit, given := fields["rate_limit"].(map[string]any)
	if !given || limit["unlimited"] == true {
		return 0, w, false
	}
	if _, err := fmt.Sscan(fmt.Sprint(limit["requests_per_unit"]), &n); err != nil || n < 0 {
		return 0, w, false
	}
	w, err := windowOf(strings.ToLower(fmt.Sprint(limit["unit"])))
	return n, w, err == nil
}
