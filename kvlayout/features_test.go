package kvlayout

import "testing"

func TestParseVersion(t *testing.T) {
	for _, c := range []struct {
		text    string
		release [4]int
		pre, ok bool
	}{
		{"0.33.0", [4]int{0, 33, 0}, false, true},
		{"v0.33.0", [4]int{0, 33, 0}, false, true},
		{" V0.33.0 ", [4]int{0, 33, 0}, false, true},
		{"0.29", [4]int{0, 29}, false, true},
		{"0.5.2.1", [4]int{0, 5, 2, 1}, false, true},
		{"0.33.0rc1", [4]int{0, 33, 0}, true, true},
		{"0.33.0-rc1", [4]int{0, 33, 0}, true, true},
		{"0.33.0a2", [4]int{0, 33, 0}, true, true},
		{"0.33.1.dev5+g4ba787ec9", [4]int{0, 33, 1}, true, true},
		{"0.22.1rc1.dev490", [4]int{0, 22, 1}, true, true},
		{"0.33.0-nightly", [4]int{0, 33, 0}, true, true},
		{"0.33.0+rocm72", [4]int{0, 33, 0}, false, true},
		{"0.33.0-rocm7.2", [4]int{0, 33, 0}, false, true},
		{"0.33.0-amd", [4]int{0, 33, 0}, false, true},
		{"0.33.0-b200", [4]int{0, 33, 0}, false, true},
		{"0.33.0.post1", [4]int{0, 33, 0}, false, true},
		{text: ""},
		{text: "latest"},
		{text: "nightly"},
		{text: "20261101"},
		{text: "0.33.0wrong", release: [4]int{0, 33, 0}},
		{text: "99999999999999999999.1"},
		{text: ".33"},
	} {
		v, ok := parseVersion(c.text)
		if ok != c.ok || v.release != c.release || v.pre != c.pre {
			t.Errorf("%q is %+v, %v; want %v, pre %v, %v", c.text, v, ok, c.release, c.pre, c.ok)
		}
	}
}

func TestSupports(t *testing.T) {
	for _, c := range []struct {
		version string
		feature Feature
		want    support
	}{
		{"0.29.0", featureWriteTP, supportNo},
		{"0.32.1", featureWriteTP, supportNo},
		{"0.33.0rc1", featureWriteTP, supportUnknown},
		{"v0.33.0", featureWriteTP, supportYes},
		{"0.33", featureWriteTP, supportYes},
		{"1.0.0", featureWriteTP, supportYes},
		{"", featureWriteTP, supportUnknown},
		{"0.29", featureDCPRelayout, supportNo},
		{"0.33.0", featureDCPRelayout, supportNo},
		{"0.33.0+rocm72", featureDCPRelayout, supportNo},
		{"0.33.1", featureDCPRelayout, supportUnknown},
		{"0.34.0.dev1", featureDCPRelayout, supportUnknown},
		{"latest", featureDCPRelayout, supportUnknown},
		{"0.33.0", "no such feature", supportUnknown},
		{"0.32.0", featureXGMIWait, supportYes},
		{"0.33.0", featureXGMIWait, supportNo},
		{"0.34.0", featureXGMIWait, supportUnknown},
		{"0.32.0", featureWriteWindows, supportUnknown},
		{"0.33.0", featureWriteWindows, supportNo},
		{"0.5.21", featureSGLangDCP, supportNo},
		{"0.5.22", featureSGLangDCP, supportYes},
	} {
		if got := supports(c.version, c.feature); got != c.want {
			t.Errorf("vLLM %q, %s: %d, want %d", c.version, c.feature, got, c.want)
		}
	}
	seen := map[Feature]bool{}
	for _, fact := range Facts() {
		_, bounded := parseVersion(fact.Without)
		if fact.Source == "" || fact.Engine == "" || !bounded || seen[fact.Feature] {
			t.Errorf("%s: a fact is there once, has a source and a release without it", fact.Feature)
		}
		seen[fact.Feature] = true
	}
}
