package regional

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"

	"tranche/allocation"
)

// What is written by hand must be what the fields' tags say, whatever a tenant, an id or a budget is called: else callers
// get what is no JSON, or a text of a caller's breaks out of its quotes.
func TestAnswerIsWhatItsTagsSay(t *testing.T) {
	random := rand.New(rand.NewPCG(6, 28))
	for range 3000 {
		var answer answerBody
		fill(random, reflect.ValueOf(&answer).Elem())
		if answer.Budgets == nil {
			answer.Budgets = []budgetBody{}
		}
		sameJSON(t, &answer, answer.appendJSON(nil))
		sameJSON(t, &batchBody{Results: []answerBody{answer, answer}}, (&batchBody{Results: []answerBody{answer, answer}}).appendJSON(nil))
		var f faultBody
		fill(random, reflect.ValueOf(&f).Elem())
		sameJSON(t, &f, f.appendJSON(nil))
	}
	sameJSON(t, &batchBody{Results: []answerBody{}}, (&batchBody{}).appendJSON(nil))
}

func sameJSON(t *testing.T, body any, got []byte) {
	t.Helper()
	var buffer bytes.Buffer
	encodeInto(&buffer, body)
	if want := bytes.TrimSuffix(buffer.Bytes(), []byte("\n")); !bytes.Equal(got, want) {
		t.Fatalf("written by hand\n%s\nbut its tags say\n%s", got, want)
	}
}

// fill gives every field, also those that are added later, a value, and now and then none.
func fill(random *rand.Rand, v reflect.Value) {
	if random.IntN(4) == 0 && v.Kind() != reflect.Struct {
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Field(i); f.CanSet() {
				fill(random, f)
			} else if v.Type().Field(i).Anonymous { // refusalBody, whose name is not exported
				if a, of := v.Addr().Interface().(*answerBody); of && random.IntN(2) == 0 {
					a.refusalBody = &refusalBody{}
					fill(random, reflect.ValueOf(a.refusalBody).Elem())
				}
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(random, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1+random.IntN(3), 4))
		for i := range v.Len() {
			fill(random, v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]int64{"tokens": random.Int64(), "requests": -1, "usd_micros": 0}))
	case reflect.String:
		v.SetString(someText(random))
	case reflect.Int64, reflect.Int:
		v.SetInt(random.Int64() - random.Int64())
	case reflect.Bool:
		v.SetBool(true)
	default:
		panic(v.Kind().String() + " is a kind that no body had")
	}
}

func someText(random *rand.Rand) string {
	text := []byte("plain")
	for range random.IntN(6) {
		parts := []string{"\"", "\\", "\x00", "\x1f", "\n", "\r", "\t", "\b", "\f", "\x7f", "é", "\u2028", "\u2029", "\ufffd", "\xff", "\xe2\x80", "😀", "<&>"}
		text = append(text, parts[random.IntN(len(parts))]...)
	}
	return string(text)
}

func FuzzAppendText(f *testing.F) {
	f.Add("a\"b\\c\x00\xffé\u2028")
	f.Fuzz(func(t *testing.T, s string) {
		sameJSON(t, s, appendText(nil, s))
		var back string
		if err := json.Unmarshal(appendText(nil, s), &back); err != nil {
			t.Error(err)
		}
	})
}

// Answers share what they point at: a second answer must not change the first, and one that is made in place of another
// must tell nothing of it.
func TestAnswersInOnePlace(t *testing.T) {
	w := newAPIWorld(t)
	w.owner.observed = apiStart - 1_500_000
	decide := func(body string) *allocation.Decision {
		w.admit("id-"+body, body)
		asked := w.owner.asked[len(w.owner.asked)-1]
		asked.Key.ID += "-again"
		d := w.owner.decide(asked)
		return &d
	}
	decisions := []*allocation.Decision{
		decide(`{"labels":{"tenant":"acme","metered":"yes"},"costs":{"requests":1,"tokens":5}}`),
		decide(`{"labels":{"tenant":"trial"},"costs":{"requests":3}}`),
		decide(`{"labels":{"tenant":"acme","metered":"yes"},"costs":{"requests":59,"tokens":5}}`),
		decide(`{"labels":{"tenant":"nobody"}}`),
		decide(`{"labels":{"tenant":"prepaid"},"costs":{"usd_micros":4}}`),
		{Reason: allocation.Overloaded, Action: allocation.ActionRefused, Op: allocation.Spend, At: 1},
	}
	var place presented
	refused := 0
	for range 2 {
		for _, d := range decisions {
			fresh := w.present(d)
			want := string(fresh.body.appendJSON(nil))
			w.presentAs(&place, d)
			if got := string(place.body.appendJSON(nil)); got != want {
				t.Errorf("in an earlier one's place\n%s\nanew\n%s", got, want)
			}
			if again := string(fresh.body.appendJSON(nil)); again != want {
				t.Errorf("the answer changed with another one: %s, was %s", again, want)
			}
			if fresh.body.refusalBody != nil {
				refused++
			}
		}
	}
	if refused < 4 || refused == 2*len(decisions) {
		t.Errorf("%d refusals: the cases do not differ", refused)
	}
}
