package regional

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"tranche/allocation"
)

// object is a JSON object of the document.
type object = map[string]any

// schemas makes JSON Schemas of the bodies that this package writes, from their types, so that the document cannot lag
// behind the code.
type schemas struct {
	named object
}

// of is the schema of a value of a type. Structs are named, and referred to.
func (s *schemas) of(t reflect.Type) object {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case t == reflect.TypeFor[json.RawMessage]():
		return object{"type": "object"} // described in the documentation
	case t == reflect.TypeFor[allocation.Reason]():
		return reasonSchema()
	case t.Kind() != reflect.Pointer && t.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return object{"type": "string"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return s.of(t.Elem())
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint32, reflect.Uint64:
		return object{"type": "integer"}
	case reflect.Float64:
		return object{"type": "number"}
	case reflect.Slice:
		return object{"type": "array", "items": s.of(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": s.of(t.Elem())}
	case reflect.Struct:
		return s.structure(t)
	}
	panic(fmt.Sprintf("no schema for %s", t))
}

// structure puts a struct among the named schemas, once.
func (s *schemas) structure(t reflect.Type) object {
	name := strings.TrimSuffix(strings.ToUpper(t.Name()[:1])+t.Name()[1:], "Body")
	if s.named[name] == nil {
		s.named[name] = object{} // a type that holds itself ends here
		properties, required := object{}, []string{}
		s.members(t, false, properties, &required)
		schema := object{"type": "object", "properties": properties}
		if len(required) > 0 {
			schema["required"] = required
		}
		s.named[name] = schema
	}
	return ref(name)
}

// members adds the fields of a struct, and of those that are embedded in it. Fields of an embedded pointer may be absent.
func (s *schemas) members(t reflect.Type, maybe bool, properties object, required *[]string) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag, given := f.Tag.Lookup("json")
		name, options, _ := strings.Cut(tag, ",")
		if f.Anonymous && !given {
			inner, pointer := f.Type, f.Type.Kind() == reflect.Pointer
			if pointer {
				inner = inner.Elem()
			}
			s.members(inner, maybe || pointer, properties, required)
			continue
		}
		if name == "-" || !f.IsExported() {
			continue
		}
		if name == "" {
			name = f.Name
		}
		schema := s.of(f.Type)
		optional := strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero")
		if nullable := f.Type.Kind() == reflect.Slice || f.Type.Kind() == reflect.Map || f.Type.Kind() == reflect.Pointer; nullable && !optional {
			schema = object{"anyOf": []any{schema, object{"type": "null"}}}
		}
		properties[name] = schema
		if !optional && !maybe {
			*required = append(*required, name)
		}
	}
}

func ref(name string) object { return object{"$ref": "#/components/schemas/" + name} }

// reasonSchema lists the reasons. Callers must read others, of a later version, as refusals.
func reasonSchema() object {
	var all []any
	for _, a := range allocation.Answers() {
		all = append(all, string(a.Reason))
	}
	return object{"type": "string", "enum": all}
}

// narrow changes the schema of some properties of a named schema: what their Go type does not say.
func (s *schemas) narrow(name string, properties object) {
	of := s.named[name].(object)["properties"].(object)
	for property, schema := range properties {
		if of[property] == nil {
			panic("there is no property " + property + " in " + name)
		}
		of[property] = schema
	}
}

func oneOf[T ~string](values ...T) object {
	var all []any
	for _, v := range values {
		all = append(all, string(v))
	}
	return object{"type": "string", "enum": all}
}
