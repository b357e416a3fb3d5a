package kvlayout

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"testing"
	"time"
)

// Pairs come from command lines, manifests and strangers' handshakes: whatever the
// numbers are, there is an answer, and what it costs does not grow with them.
func TestCompatibleOfAnyNumbers(t *testing.T) {
	const most = 4 << 20 // bytes, of which an ordinary refusal takes 100 KiB
	r := random(t)
	var before, after runtime.MemStats
	for range 5000 {
		p := anyNumbers(r)
		runtime.ReadMemStats(&before)
		Compatible(p)
		Check(p, Prefill)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > most {
			t.Errorf("%+v takes %d KiB", p, took>>10)
		}
	}
}

// BenchmarkCompatibleOfAnyNumbers is the cost of a pair of that kind, and of the worst.
func BenchmarkCompatibleOfAnyNumbers(b *testing.B) {
	r := random(b)
	var longest time.Duration
	for b.Loop() {
		p := anyNumbers(r)
		start := time.Now()
		Compatible(p)
		longest = max(longest, time.Since(start))
	}
	b.ReportMetric(float64(longest.Microseconds()), "us/worst")
}

func anyNumbers(r *rand.Rand) Pair {
	p := randomPair(r)
	model := p.Model
	p.Model = nil
	scramble(r, reflect.ValueOf(&p).Elem())
	p.Model = model
	return p
}

// scramble sets some of the numbers to extremes.
func scramble(r *rand.Rand, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			scramble(r, field)
		}
	case reflect.Int, reflect.Int64:
		if r.IntN(6) == 0 {
			v.SetInt(pick[int64](r, math.MinInt64, -1, 0, 1, 3, 1<<16, math.MaxInt32, math.MaxInt64))
		}
	default:
	}
}

func FuzzCompatible(f *testing.F) {
	for _, p := range []Pair{seedPair(), plainPair()} {
		text, err := json.Marshal(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`{"engine":"SGLang","mode":"Read","prefill":{"layout":{"tp":8,"dp":8},"pcp":2},"decode":{"layout":{"tp":1,"pp":4},"ep":3}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var p Pair
		if json.Unmarshal(text, &p) != nil {
			t.Skip()
		}
		if p.Model != nil && p.Model.Validate() != nil {
			t.Skip() // Rules take models that ParseConfig and the catalog return.
		}
		for _, problem := range Compatible(p) {
			if problem.Rule == "" || problem.Field == "" || problem.Message == "" || problem.Reason == "" || problem.Fix == "" {
				t.Errorf("%s: %+v lacks a part", text, problem)
			}
		}
	})
}
