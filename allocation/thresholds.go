package allocation

import (
	"encoding/json"
	"fmt"
	"slices"
)

// MaxThresholds bounds the thresholds that a budget declares.
const MaxThresholds = 10

// DefaultThresholds are those of a budget that declares none, in percent.
func DefaultThresholds() []int64 { return []int64{50, 80, 100} }

// Told are the thresholds that count for a budget: none for a template, of which no instance's use is known.
func (b Budget) Told() []int64 {
	switch {
	case b.IsTemplate():
		return nil
	case len(b.Thresholds) == 0:
		return DefaultThresholds()
	}
	return b.Thresholds
}

func (b *Budget) checkThresholds(found *Problems) {
	t := b.Thresholds
	switch {
	case len(t) == 0:
	case b.IsTemplate():
		found.add("thresholds", "is for single budgets: of a template only the sum over its instances is known", "leave it out, or declare a budget for the instance that you want to hear of")
	case len(t) > MaxThresholds:
		found.add("thresholds", fmt.Sprintf("has %d parts", len(t)), fmt.Sprintf("use at most %d", MaxThresholds))
	case !slices.IsSorted(t) || len(slices.Compact(slices.Clone(t))) < len(t) || t[0] < 1 || t[len(t)-1] > 100:
		found.add("thresholds", fmt.Sprintf("is %v", t), "use percents of 1 to 100, rising, each once, such as [70, 90, 100]")
	}
}

// thresholds reads a list of whole percents.
func (r *budgetReader) thresholds(to *[]int64) readField {
	return func(path string, value any) {
		list, ok := value.([]any)
		if !ok || len(list) == 0 {
			r.wrong(path, "is no list of percents", "use such as [70, 90, 100], or leave it out for 50, 80 and 100")
			return
		}
		*to = make([]int64, len(list))
		for i, v := range list[:min(len(list), MaxThresholds+1)] {
			r.count(&(*to)[i], 1, 100)(fmt.Sprintf("%s[%d]", path, i), v)
		}
	}
}

// readList reads a list after its opening bracket. The document's size bounds it.
func readList(d *json.Decoder, path string, depth int) (any, *FieldError) {
	list := []any{}
	for d.More() {
		value, fault := readTree(d, fmt.Sprintf("%s[%d]", path, len(list)), depth-1)
		if fault != nil {
			return nil, fault
		}
		list = append(list, value)
	}
	if _, err := d.Token(); err != nil { // the closing bracket
		return nil, &FieldError{Field: path, Problem: err.Error(), Fix: "give one JSON list"}
	}
	return list, nil
}
