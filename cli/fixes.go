package cli

import (
	"regexp"
	"strings"

	"github.com/pdpool/pdpool/engine"
	"github.com/pdpool/pdpool/kvlayout"
)

// flag is what says a field of the spec in place of a manifest: a flag of the engine,
// or one of this command; "" where nothing does.
func (c commandPair) flag(field string) string {
	for _, r := range []kvlayout.Role{kvlayout.Prefill, kvlayout.Decode} {
		field = strings.TrimPrefix(field, string(r)+".")
	}
	switch field {
	case "transfer.mover":
		return "--mover"
	case "engine.version":
		return "--engine-version"
	case "model.geometry":
		return "--config"
	}
	for _, f := range saidAs(field) {
		if flag := engine.FieldFlag(c.pair.Engine, f); flag != "" {
			return flag
		}
	}
	return ""
}

// saidAs are the fields that a flag may stand for when rules speak of one: what a role
// replaces has one flag with the field of both roles.
func saidAs(field string) []string { return []string{field, "engine." + field, "model." + field} }

// Parts of the sentences that say what to change of a pool.
var (
	fieldWord  = `((?:prefill|decode|engine|model|transfer|gpu)\.[A-Za-z.]*[A-Za-z])`
	assigned   = regexp.MustCompile(`(set |, or |or |and |^)` + fieldWord + ` to ([A-Za-z0-9_]+)`)
	fieldAlone = regexp.MustCompile(`\b` + fieldWord)
	ofBoth     = regexp.MustCompile(`set prefill\.([A-Za-z]+) and decode\.[A-Za-z]+ to ([A-Za-z0-9_]+)`)
	// replicas are no field of a command line: they are commands.
	replicasTo    = regexp.MustCompile(`(?:raise|set) (prefill|decode)\.replicas to (\d+)`)
	replicasTimes = regexp.MustCompile(`multiply (prefill|decode)\.replicas by (\d+)`)
	fewWords      = strings.NewReplacer(
		"an engine.image of ", "", "one engine.image ", "one image ", "engine.image", "image",
		"set model.geometry from the model's config.json (kind, layers, attentionHeads, kvHeads, headValues)", "give the model's config.json with --config",
		"name the model once, in model.name", "give both command lines one model",
		", or set gpu.devicesPerNode to what the nodes have", "",
		"use prefill.replicas for more", "start more prefill instances", "use decode.replicas for more", "start more decode instances",
		"engine.version to the release in the image", "--engine-version with the release in the image",
	)
)

// inFlags is a fix said in flags, as command lines have no fields; "" where it names none.
func (c commandPair) inFlags(fix string) string {
	out := fewWords.Replace(fix)
	out = replicasTo.ReplaceAllString(out, "start $2 $1 instances")
	out = replicasTimes.ReplaceAllString(out, "start $2 times as many $1 instances")
	out = ofBoth.ReplaceAllStringFunc(out, func(part string) string {
		m := ofBoth.FindStringSubmatch(part)
		return "give both sides " + strings.TrimPrefix(c.assign("decode."+m[1], m[2]), "decode ")
	})
	out = assigned.ReplaceAllStringFunc(out, func(part string) string {
		m := assigned.FindStringSubmatch(part)
		switch flag := c.assign(m[2], m[3]); {
		case flag == "":
			return part
		case strings.Contains(flag, " in --"):
			return m[1] + flag
		default:
			return strings.Replace(m[1], "set ", "give ", 1) + flag
		}
	})
	out = fieldAlone.ReplaceAllStringFunc(out, func(field string) string {
		flag := c.flag(field)
		role, _, _ := strings.Cut(field, ".")
		switch {
		case flag == "":
			return field
		case role == string(kvlayout.Prefill), role == string(kvlayout.Decode):
			return flag + " of " + role
		}
		return flag
	})
	out = strings.ReplaceAll(out, "set --", "give --")
	if out == fix {
		return ""
	}
	return out
}

// assign is the flag, and whose, that gives a field its value.
func (c commandPair) assign(field, value string) string {
	role, rest, _ := strings.Cut(field, ".")
	switch rest {
	case "mode", "backend":
		key, said := "backend", strings.ToLower(value)
		if rest == "mode" {
			key, said = "read_mode", map[string]string{"Write": "false", "Read": "true"}[value]
		}
		if c.pair.Engine != kvlayout.VLLM || role != "transfer" {
			return ""
		}
		return key + " to " + said + " in --kv-transfer-config"
	case "kvCacheType":
		t := kvlayout.KVType(value)
		if value = engine.KVDType(t); c.pair.Engine == kvlayout.SGLang && t == kvlayout.FP8 {
			value = "fp8_e4m3" // SGLang has no shorter name for it
		}
	}
	flag := c.flag(field)
	switch {
	case flag == "":
		return ""
	case role == string(kvlayout.Prefill), role == string(kvlayout.Decode):
		return role + " " + flag + " " + value
	}
	return flag + " " + value
}
