/* The contract between the program that names kernel addresses and src/record/symbol_program.rs. */
#ifndef SYMBOLS_H
#define SYMBOLS_H

enum {
	NAMED_AT_ONCE = 512,
	NAMES_BYTES = 1 << 15,
	LONGEST_NAME = 1 << 10, /* KSYM_NAME_LEN is 512, offset, size and module follow */
};

/* Memory both sides share. */
struct named {
	__u32 asked;           /* addresses there are */
	__u32 done;            /* of these, named: all, or as many as `text` had room for */
	__u32 bytes;           /* of `text` in use */
	__u64 addresses[NAMED_AT_ONCE];
	char text[NAMES_BYTES]; /* "name+0xoffset/0xsize [module]" of each, or its bare number; each ends with 0 */
};

/* Where symbols are, 0 where there is none. */
struct landmarks {
	__u64 stext, etext;
	__u64 sinittext, einittext;
	__u64 idle_start, idle_end;
};

#endif
