/* base/text.c: what does not fit is cut where a reader can tell. */
#include "tests/unit/unit.h"

#include "base/error.h"
#include "base/text.h"

static void sentence_that_fits_is_whole(void **state)
{
    char out[16];

    (void)state;
    gvmi_text_print(out, sizeof out, "%s", "123456789012345");
    assert_string_equal(out, "123456789012345");
    gvmi_text_print(out, sizeof out, "%s", "");
    assert_string_equal(out, "");
}

static void sentence_too_long_ends_after_a_word(void **state)
{
    char out[20];

    (void)state;
    gvmi_text_print(out, sizeof out, "%s", "raise the limit of open files");
    assert_string_equal(out, "raise the limit ...");
    gvmi_text_print(out, sizeof out, "%s", "raise the limits of open files");
    assert_string_equal(out, "raise the ...");
}

static void word_too_long_is_cut_between_characters(void **state)
{
    char out[12];

    (void)state;
    gvmi_text_print(out, sizeof out, "%s", "abcdefghijklmnop");
    assert_string_equal(out, "abcdefgh...");
    gvmi_text_print(out, sizeof out, "%s", "abcdefg\xc3\xa9hijklmno");
    assert_string_equal(out, "abcdefg...");
}

/* Of every length: it fits, it ends in a mark, and what precedes it is the sentence's beginning. */
static void sentence_of_any_length_fits(void **state)
{
    static const char words[] = "one fish two fish red fish blue fish and one more fish beside it";
    char out[sizeof words + 1];

    (void)state;
    for (size_t bytes = 8; bytes <= sizeof words; bytes++) {
        size_t len;

        memset(out, 'x', sizeof out);
        gvmi_text_print(out, bytes, "%s", words);
        len = strlen(out);
        assert_true(len < bytes);
        assert_int_equal(out[bytes], 'x');
        if (bytes < sizeof words) {
            assert_string_equal(out + len - 3, "...");
            assert_memory_equal(out, words, len - 3);
        }
    }
}

static void name_that_fits_is_whole(void **state)
{
    char name[GVMI_TEXT_NAME_BYTES], out[GVMI_TEXT_NAME_BYTES];

    (void)state;
    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = '\0';
    assert_string_equal(gvmi_text_name(name, out), name);
}

static void name_too_long_keeps_both_ends(void **state)
{
    char name[256], out[GVMI_TEXT_NAME_BYTES];

    (void)state;
    memset(name, 'n', sizeof name);
    memcpy(name, "/sales", 6);
    strcpy(name + 240, "/2026/q3");
    gvmi_text_name(name, out);
    assert_int_equal(strlen(out), sizeof out - 1);
    assert_memory_equal(out, "/salesnnn", 9);
    assert_non_null(strstr(out, "n...n"));
    assert_string_equal(out + strlen(out) - 8, "/2026/q3");
}

static void error_too_long_ends_after_a_word(void **state)
{
    gvm_error error;
    char words[400];

    (void)state;
    for (size_t i = 0; i < sizeof words; i++)
        words[i] = i % 6 == 5 ? ' ' : 'w';
    words[sizeof words - 1] = '\0';
    (void)gvm_error_set(GVM_E_INVALID, "%s", words);
    assert_int_equal(gvm_error_last(&error), GVM_OK);
    assert_true(strlen(error.text) < sizeof error.text);
    assert_string_equal(error.text + strlen(error.text) - 5, "w ...");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sentence_that_fits_is_whole),
        cmocka_unit_test(sentence_too_long_ends_after_a_word),
        cmocka_unit_test(word_too_long_is_cut_between_characters),
        cmocka_unit_test(sentence_of_any_length_fits),
        cmocka_unit_test(name_that_fits_is_whole),
        cmocka_unit_test(name_too_long_keeps_both_ends),
        cmocka_unit_test(error_too_long_ends_after_a_word),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
