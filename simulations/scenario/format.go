package scenario

import (
	"fmt"
	"strconv"
	"strings"

	"tranche/allocation"
)

// grouped writes a number with commas.
func grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, text = "-", text[1:]
	}
	var b strings.Builder
	for i, c := range text {
		if i > 0 && (len(text)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(c)
	}
	return sign + b.String()
}

func percent(part float64) string { return fmt.Sprintf("%.1f %%", part*100) }

// percentOf is a part of a whole in words; of nothing it is a dash.
func percentOf(a, b int64) string {
	if b == 0 {
		return "–"
	}
	return percent(ratio(a, b))
}

func millis(micros int64) string {
	if micros%1000 == 0 || micros >= 10_000 {
		return fmt.Sprintf("%d ms", (micros+500)/1000)
	}
	return fmt.Sprintf("%.1f ms", float64(micros)/1000)
}

// permitHours writes permit-seconds as permit-hours.
func permitHours(seconds int64) string { return grouped((seconds + 1800) / 3600) }

// clock writes a time since the start as hours and minutes.
func clock(d allocation.Duration) string {
	if d%60 != 0 {
		return fmt.Sprintf("%d:%02d:%02d", d/3600, d/60%60, d%60)
	}
	return fmt.Sprintf("%d:%02d", d/3600, d/60%60)
}

// wrap breaks a text into lines of at most width characters.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return append(lines, line)
}
