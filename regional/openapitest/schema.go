package openapitest

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"time"
)

// keywords are those of JSON Schema that value knows.
var keywords = []string{
	"$ref", "type", "enum", "anyOf", "properties", "required", "additionalProperties", "items", "pattern", "format", "minimum",
	"maximum", "minLength", "maxLength", "minItems", "maxItems", "maxProperties", "description", "default",
}

// value checks one value. Members of an object that are not named are refused, whatever the schema says of them: clients
// may be told to pass over them, but the document is to name what is sent.
func (d *Document) value(schema object, v any, at string) error {
	schema = d.follow(schema)
	for k := range schema {
		if !slices.Contains(keywords, k) {
			return fmt.Errorf("%s: this checker does not know the keyword %s", at, k)
		}
	}
	if any, ok := schema["anyOf"].([]any); ok {
		var errs []error
		for _, one := range any {
			err := d.value(one.(object), v, at)
			if err == nil {
				return nil
			}
			errs = append(errs, err)
		}
		return fmt.Errorf("%s fits none of %d: %w", at, len(any), errors.Join(errs...))
	}
	if kind, ok := schema["type"].(string); ok && !is(v, kind) {
		return fmt.Errorf("%s is %T, not of type %s", at, v, kind)
	}
	if enum, ok := schema["enum"].([]any); ok && !slices.Contains(enum, v) {
		return fmt.Errorf("%s is %v, which is not in the document", at, v)
	}
	switch v := v.(type) {
	case string:
		return text(schema, v, at)
	case float64:
		return number(schema, v, at)
	case []any:
		return d.list(schema, v, at)
	case object:
		return d.members(schema, v, at)
	}
	return nil
}

func is(v any, kind string) bool {
	switch kind {
	case "null":
		return v == nil
	case "string":
		_, ok := v.(string)
		return ok
	case "boolean":
		_, ok := v.(bool)
		return ok
	case "number":
		_, ok := v.(float64)
		return ok
	case "integer":
		f, ok := v.(float64)
		return ok && f == math.Trunc(f)
	case "array":
		_, ok := v.([]any)
		return ok
	case "object":
		_, ok := v.(object)
		return ok
	}
	return false
}

func text(schema object, v, at string) error {
	if pattern, ok := schema["pattern"].(string); ok && !regexp.MustCompile(pattern).MatchString(v) {
		return fmt.Errorf("%s is %q, which does not match %s", at, v, pattern)
	}
	if schema["format"] == "date-time" {
		if _, err := time.Parse(time.RFC3339Nano, v); err != nil {
			return fmt.Errorf("%s is %q, not a date and time", at, v)
		}
	}
	if least, ok := schema["minLength"].(float64); ok && float64(len(v)) < least {
		return fmt.Errorf("%s is %q, too short", at, v)
	}
	if most, ok := schema["maxLength"].(float64); ok && float64(len(v)) > most {
		return fmt.Errorf("%s is %q, too long", at, v)
	}
	return nil
}

func number(schema object, v float64, at string) error {
	if least, ok := schema["minimum"].(float64); ok && v < least {
		return fmt.Errorf("%s is %v, below %v", at, v, least)
	}
	if most, ok := schema["maximum"].(float64); ok && v > most {
		return fmt.Errorf("%s is %v, above %v", at, v, most)
	}
	return nil
}

func (d *Document) list(schema object, v []any, at string) error {
	if least, ok := schema["minItems"].(float64); ok && float64(len(v)) < least {
		return fmt.Errorf("%s has %d elements, fewer than %v", at, len(v), least)
	}
	if most, ok := schema["maxItems"].(float64); ok && float64(len(v)) > most {
		return fmt.Errorf("%s has %d elements, more than %v", at, len(v), most)
	}
	items, ok := schema["items"].(object)
	if !ok {
		return nil
	}
	for i, one := range v {
		if err := d.value(items, one, fmt.Sprintf("%s[%d]", at, i)); err != nil {
			return err
		}
	}
	return nil
}

func (d *Document) members(schema, v object, at string) error {
	if most, ok := schema["maxProperties"].(float64); ok && float64(len(v)) > most {
		return fmt.Errorf("%s has %d members, more than %v", at, len(v), most)
	}
	required, _ := schema["required"].([]any)
	for _, name := range required {
		if _, ok := v[name.(string)]; !ok {
			return fmt.Errorf("%s lacks %s", at, name)
		}
	}
	properties, named := schema["properties"].(object)
	other, others := schema["additionalProperties"].(object)
	for name, member := range v {
		of, ok := properties[name].(object)
		switch {
		case ok:
		case others:
			of = other
		case !named: // any object
			continue
		default:
			return fmt.Errorf("%s has the member %s, which is not in the document", at, name)
		}
		if err := d.value(of, member, at+"."+name); err != nil {
			return err
		}
	}
	return nil
}
