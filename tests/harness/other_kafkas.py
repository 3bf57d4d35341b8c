"""Versions of Apache Kafka that our tests run on besides the one that is used, and the SHA-256 of
their jars.

Written as :mod:`reactive_kafka.broker.jar_hashes` is: from what Maven fetched, and had compared
with the checksums of its repository. Jars that they share with the version that is used are pinned
there.
"""

from __future__ import annotations

from collections.abc import Mapping

from reactive_kafka.broker.jar_hashes import SHA256

OTHER_VERSIONS = ("3.9.1", "4.0.1", "4.1.1", "4.2.0")

PINNED: Mapping[str, str] = {
    **SHA256,
    # Apache Kafka 3.9.1
    "audience-annotations-0.12.0.jar": "ffb101fc066360ff3c77457c927fd7967fb096a6ee9e046ab7071447d8208efc",
    "caffeine-2.9.3.jar": "1e0a7bbef1dd791653143f3f05d0e489934bf5481e58a87c9e619cd46b68729b",
    "commons-cli-1.4.jar": "fd3c7c9545a9cdb2051d1f9155c4f76b1e4ac5a57304404a6eedb578ffba7328",
    "commons-io-2.14.0.jar": "e35d1df7232568ed4b81d9a9ed94a0159b3ff6cf1915cc21eef5cb55d7b157a2",
    "commons-logging-1.2.jar": "daddea1ea0be0f56978ab3006b8ac92834afeefbd9b7e4e6316fca57df0fa636",
    "commons-validator-1.7.jar": "4d74f4ce4fb68b2617edad086df6defdf9338467d2377d2c62e69038e1c4f02f",
    "error_prone_annotations-2.10.0.jar": "a249d4d25dfb86d41e6c82fc335df580189f0c9feeabdc53233fc1e5060724a1",
    "jackson-annotations-2.16.2.jar": "d1cdd269ebaa753d1842933194e17d61958f058952d63e03dbfb3d1d78a6926e",
    "jackson-core-2.16.2.jar": "4f43e2f1430b2d2413e8e5a3d79138e57e891d6a961b18c28ac90859639d8664",
    "jackson-databind-2.16.2.jar": "53b6025d98c357068296e4b134242443a248c2c582800879f1c4ea93b54bafa6",
    "jackson-dataformat-csv-2.16.2.jar": "01a04610def154c50369e8bcd7c5ae1401579f591aa55e88f05093447e24d490",
    "jackson-datatype-jdk8-2.16.2.jar": "3e9b1b59f638b487b5ae0e2f4190fc98f72b0bf661324e7dfc71a69f6b9d4e29",
    "jackson-module-scala_2.13-2.16.2.jar": "1154f6dc8643739c0c3ef4c2a7901ca752b5cca7ebe1908d405ced701a8f3764",
    "jose4j-0.9.4.jar": "9012aa4c20319d35159030c3bdecade66863030a98338bfdf73a5238849fb9d9",
    "kafka-group-coordinator-3.9.1.jar": "fd30310533df51b17d14beb8eb8c9006a9ebb90b536c319776429e413f622a69",
    "kafka-group-coordinator-api-3.9.1.jar": "cb267d841def1172d8db24a830936f1c6aaf29c3de5bdbc5bbc42b67d8cb82c0",
    "kafka-metadata-3.9.1.jar": "35c35118d4abb0b747ad68d1e0be00d5bd02206b462ad76ebbcd85b33436f13a",
    "kafka-raft-3.9.1.jar": "0d4236cf868f8668c74c49bec4bed41e400bb13d6d381a0f8e9843585b2f159f",
    "kafka-server-3.9.1.jar": "02b5a92645865e3152e9d1d829f6d4c4b4272f637b7fe4a2b00cabcbcd8df6f4",
    "kafka-server-common-3.9.1.jar": "99f1f5f81e9d39cfbe5c96ab8e3854be8deca465937192c9a6e2f231678d31f6",
    "kafka-storage-3.9.1.jar": "a3041e6192a37e5508519d776f8af93b74d3fd23174b03e270c0394f1c77b59f",
    "kafka-storage-api-3.9.1.jar": "f466777625641d4bca1314d80206eafa9e2494326496ad626489ba0a0ef479fc",
    "kafka-tools-3.9.1.jar": "aae08609f1259e59db9746570c53d939820e9efa7a4c0fd7bf7d1b3508f34f11",
    "kafka-tools-api-3.9.1.jar": "c365c872ffc9a04886f248c5fd90067829ed4064fcd8fe5e12611b163cd053b4",
    "kafka-transaction-coordinator-3.9.1.jar": "45b852f2e6e501d4dbdd43b97c4057e6cb6827b76e5aabcffcae8b8e2918554f",
    "kafka_2.13-3.9.1.jar": "5631c61356d55611c158291a69ad028f3c4fed5d0a610c62a0853c65c89d10f6",
    "metrics-core-4.1.12.1.jar": "cec34936faa625039f4e46123eccaa10a9eb9d9a40c6075830cd81330e259cf9",
    "netty-buffer-4.1.105.Final.jar": "cc1b0108a60b1eb69bd01a10922851a166c58972cc0683f2116a9e8e7ecdaf0b",
    "netty-codec-4.1.105.Final.jar": "c4f62480b408fb835b454c74cf6394a4c7088ffdaec78742fcece816c46bb58e",
    "netty-common-4.1.105.Final.jar": "399a8045fb43861afb7fc1ef3371f95a0b176692fb268f4867cff4957e63fd25",
    "netty-handler-4.1.105.Final.jar": "5a6945cf1de374628b37ab1c35a4c47c2f5616db3a94b150720641477112be8e",
    "netty-resolver-4.1.105.Final.jar": "7202edd076a1edab50fdb0f3e54f56a02129b326296d9f35f4194f8cfb9b96ef",
    "netty-transport-4.1.105.Final.jar": "be9b8a2f86685a876e469c904cb9fce53a1e826e178d44d2b1d92f6a99054737",
    "netty-transport-classes-epoll-4.1.105.Final.jar": "a43bf94f784eb759c14f0b0c7e1c5985a64879e8c7ab21ba7c0c80f7a9382b30",  # noqa: E501, RUF100
    "netty-transport-native-epoll-4.1.105.Final.jar": "61f09ce16f0fd25e57a0a732f8fb79344f6b95051d88ac50a28874ad92e6d149",  # noqa: E501, RUF100
    "netty-transport-native-unix-common-4.1.105.Final.jar": "7db91b72aae19e1cdca13c7fa76d57db20cbaf5b1e770563909a4437c63eb5cb",  # noqa: E501, RUF100
    "paranamer-2.8.jar": "688cb118a6021d819138e855208c956031688be4b47a24bb615becc63acedf07",
    "pcollections-4.0.1.jar": "1f82766d7c3221930854033bebff5073ea46b43f27326074bbe15d148c18bfb3",
    "scala-collection-compat_2.13-2.10.0.jar": "bb10091bd55131a5327bdeddede74e5d8a695acab24a97567111784f2f427299",
    "scala-java8-compat_2.13-1.0.2.jar": "90d5b13656be93fb779b8d7c723efa2498a34af06273bb5204afb65f85a20c1b",
    "scala-library-2.13.15.jar": "8e4dbc3becf70d59c787118f6ad06fab6790136a0699cd6412bc9da3d336944e",
    "scala-reflect-2.13.15.jar": "78d0cc350e1ee42d87c6e11cf5b0dc7bf0b70829c00aa38f27bfb019d439dc11",
    "snappy-java-1.1.10.5.jar": "0f3f1857ed33116583f480b4df5c0218836c47bfbc9c6221c0d73f356decf37b",
    "zookeeper-3.8.4.jar": "2d77b152039e7f85dc5438a9304febff86a2f3e55c88976a8be309af39028e97",
    "zookeeper-jute-3.8.4.jar": "93e854b55d731e745bafec187e2e7bf3389fd2a88e2fc8d1a3c1b9110284b284",
    "zstd-jni-1.5.6-4.jar": "793ca8734aa15687e7e64564eab8b6ae9ee2720eae27aa663074682144b1c386",
    # Apache Kafka 4.0.1
    "caffeine-3.1.1.jar": "abc0622a6f3ffc60e34a06bccd334b70cfa96b7be7824e73423944464df8ccf6",
    "jackson-dataformat-yaml-2.16.2.jar": "df33f4dd29f975600d3ac2e7c891ef7a9bce33f0715680df479c63a44ddc8fa9",
    "kafka-clients-4.0.1.jar": "ef3e6bc207822302c36c4c5870007fdfc76659c033eb7e4e079db3b34f30443c",
    "kafka-coordinator-common-4.0.1.jar": "ddb9e98f7d25d1cecc7848a6837ca4e410f92695eee1ef1082269d9f8365c861",
    "kafka-group-coordinator-4.0.1.jar": "acdd73a10bbb853a879e7bb9fe3847ec7057aaa9606fa78dec8ccfc62ab03f7f",
    "kafka-group-coordinator-api-4.0.1.jar": "8e1fd0d4d99b1eadd602e66eb8fb7a6b0a2456fb20ac0ea6efd8df7351c64f8e",
    "kafka-metadata-4.0.1.jar": "07d98cb6a063f199e40811cb698fbe8edd476f34cbd46567a001adfbd6bc2d78",
    "kafka-raft-4.0.1.jar": "1617ebb235c41710a28f30958d3de4f7b038195ba1e13fc20ab8a70a8e225af4",
    "kafka-server-4.0.1.jar": "2df7f3e91f2a26b101d0f6693be54c8dae75d494209680e265a2fb86bf251a3c",
    "kafka-server-common-4.0.1.jar": "ab94b2013089199365a075c9ae59ecb91430902aaf4ccfc20277b87d886f45e4",
    "kafka-share-coordinator-4.0.1.jar": "4d43765bdcaae66d6ab73ff5ce6ebdfeb86c710ee35e64dc0100293de9ad6895",
    "kafka-storage-4.0.1.jar": "e60cbcc1d44b77c914f25da5a88faa48712ace6a7691100fba1739337df4f404",
    "kafka-storage-api-4.0.1.jar": "bf01d1961933eb8544a2d081c19816bb1fa3713b8769bf7a0932ea8d5ee7b77f",
    "kafka-tools-4.0.1.jar": "81bbac7f19943c301f4ecd839a9dba31d36b18bcdfa0f9a5b396a67ef36519c9",
    "kafka-tools-api-4.0.1.jar": "fd0ac6ba1fcfdd0232cbf181ecd7ccef7e1315e10091390996240f7cab548ca4",
    "kafka-transaction-coordinator-4.0.1.jar": "1712b7ec5e31d5126ae5268acbdfae47d0c59793ebc27839117ebdc031335daf",
    "kafka_2.13-4.0.1.jar": "fba6da72afd46f708149f6345111354644dc7b28e7adc31f0ee800930d8dbe5b",
    "re2j-1.7.jar": "4f657af51ab8bb0909bcc3eb40862d26125af8cbcf92aaaba595fed77f947bc0",
    "snakeyaml-2.2.jar": "1467931448a0817696ae2805b7b8b20bfb082652bf9c4efaed528930dc49389b",
    "zstd-jni-1.5.6-6.jar": "1f85db623bf653860d10e13e7b1ca6609301f66994dc93784c92a66019516bb9",
    # Apache Kafka 4.1.1
    "commons-beanutils-1.9.4.jar": "7d938c81789028045c08c065e94be75fc280527620d5bd62b519d5838532368a",
    "commons-logging-1.3.2.jar": "6b858424f518015f32bfcd1183a373f4a827d72d026b6031da0c91cf0e8f3489",
    "commons-validator-1.9.0.jar": "c3c14748e2d78db58df88808740711bd643b32c45ffa7b8a739f00fb467cd7d7",
    "jackson-annotations-2.19.0.jar": "ead60e9cac0e42b57092b9e2d087ff43536e9477d4486ba393037a8cc156cda7",
    "jackson-core-2.19.0.jar": "da8e859bac94874528116a25f20c68560e4287acbf27628711b8a4f96b028430",
    "jackson-databind-2.19.0.jar": "ceda311f476c3b18e1d2b240c94e2dcb9c8d44e70f8afa9facab88bac4ddc03a",
    "jackson-dataformat-csv-2.19.0.jar": "bec1150426b0616bb488149b952b45a0dcb16d9416b017c38f6455ad9389bc68",
    "jackson-dataformat-yaml-2.19.0.jar": "46e54dcbd39d4d12cda18ec9276e7b888e08fc765ea0c77e71662306f0d4abc4",
    "jackson-datatype-jdk8-2.19.0.jar": "04f1a3f9da8155995dd00098d6847cdb9b7af67f4a3028c94031eff017c8e3e5",
    "kafka-clients-4.1.1.jar": "00247122a572c3d3ae4eb60a50192a5811bc0181f51923d13018600f892e821d",
    "kafka-coordinator-common-4.1.1.jar": "2072fc1ce7e0505149bba22a463a5909a899c6235c4fa696f15c21194a7baf60",
    "kafka-group-coordinator-4.1.1.jar": "3eb5a673b69d5992cfa86c5436f39adbf4ce284046a4c999ec6af0a8e31c5589",
    "kafka-group-coordinator-api-4.1.1.jar": "3d1801d2329dcf7d273796a034d61e6c7e0f851f384d0afbdd3a2e6cbd17a968",  # noqa: E501, RUF100
    "kafka-metadata-4.1.1.jar": "a689665751415b6456de1ecb013042cb7ba99ac68fd8c3e8bf28e098feb43218",
    "kafka-raft-4.1.1.jar": "4810c93d93d1935dd54de61c5ba130f501c7fe11bc49ccd3ee05ec857818a72a",
    "kafka-server-4.1.1.jar": "9f6aff422855491aad54326eca8d604163d6d3a6507cc48ffe3ce6de73caf79a",
    "kafka-server-common-4.1.1.jar": "207edecd8322cf6c13d76d84addea7fd0ec441dc8d698cf69df43210ccdc0a94",
    "kafka-share-coordinator-4.1.1.jar": "e6bec53428c77bf6579321836d482542a93575f7c08e860a26c9f2c7f6059dac",
    "kafka-storage-4.1.1.jar": "1f85b82853eaec0143efbef7e3a4d4be8929ff83a386326431e0c2d0a557e58c",
    "kafka-storage-api-4.1.1.jar": "8c0a712472185d706c6bf5ae24bf5d84a8e396fd4745c708e6146a415f7fa7f7",
    "kafka-tools-4.1.1.jar": "8a6939f310a61119cedaffc144119e9b2a374e32a7ec18f78e49ce5aeb71d6b0",
    "kafka-tools-api-4.1.1.jar": "542b08fe20cf872a2d866acdff61ea338b469219dc2ebfae727a1d9ea5737e1a",
    "kafka-transaction-coordinator-4.1.1.jar": "a261b5730ac9e3205df7af5d45180d851e9d5f729ce1275c67511a6f51f73755",  # noqa: E501, RUF100
    "kafka_2.13-4.1.1.jar": "e89428126cc7630a802123ba27aac4442816840b66d60670226feaff65f24fd1",
    "lz4-java-1.8.0.jar": "d74a3334fb35195009b338a951f918203d6bbca3d1d359033dc33edd1cadc9ef",
    "scala-library-2.13.16.jar": "1ebb2b6f9e4eb4022497c19b1e1e825019c08514f962aaac197145f88ed730f1",
    "scala-logging_2.13-3.9.5.jar": "87a3017d3f43e6ace7566fe4c3d615134c6914ff871c8d64bb32ca1d996d0545",
    "scala-reflect-2.13.16.jar": "fb49ccd9cac7464486ab993cda20a3c1569d8ef26f052e897577ad2a4970fb1d",
    "snakeyaml-2.4.jar": "ef779af5d29a9dde8cc70ce0341f5c6f7735e23edff9685ceaa9d35359b7bb7f",
    "zstd-jni-1.5.6-10.jar": "b6c3237e24b8252a5a9c3a0e1ae30ef8f323412e74bd358548b7a9e527d676df",
    # Apache Kafka 4.2.0
    "jackson-annotations-2.19.2.jar": "e516743a316dcf83c572ffc9cb6e8c5e8c134880c8c5155b02f7b34e9c5dc3cf",
    "jackson-core-2.19.2.jar": "aa77eaf29293a868c47372194f7c5287d77d9370b04ea25d3fffc1e4904b5880",
    "jackson-databind-2.19.2.jar": "0a1bd4e9b0d670e632d40ee8c625ad376233502f03c2f5889baea95d025b47a7",
    "jackson-dataformat-csv-2.19.2.jar": "00a733ae8d1eadefefbef22dd2a2565b665e687864a11db3fad3487bb9448905",
    "jackson-dataformat-yaml-2.19.2.jar": "80a213e7d998244922ab7bcf0938ea03eb7868e88e2d05a8407c6228c885a37e",
    "jackson-datatype-jdk8-2.19.2.jar": "6055fef10756e8bd1b0e8807aa1d881338c63ca95d59271e1da4922b9a17581e",
    "kafka-clients-4.2.0.jar": "bcf39f152c5553c2501a491fc4a73c5b0330741e8eed96a481323b8ee89738af",
    "kafka-coordinator-common-4.2.0.jar": "75c9ce733dd11759ef19f05d21af6397bacbf86dde83551ba46ecde51da1674d",
    "kafka-group-coordinator-4.2.0.jar": "6038093c1823c622a71825297aa03881d66b7df15213cb3a5e930cc36c32d1fb",
    "kafka-group-coordinator-api-4.2.0.jar": "7d3329e5696d48d84ebd0f7f25c4b27c14e397eb013d8a6113ce38d8e043c2aa",
    "kafka-metadata-4.2.0.jar": "55fd69178bd1679ae484226e76d78556445e8d8668c03b511f351cf154bec845",
    "kafka-raft-4.2.0.jar": "206c9580c4a9dde784e36508cdb1b020debb5a49b465712958e05cd6cc4da256",
    "kafka-server-4.2.0.jar": "907c4c0ec05b99d311ab945be9747d5ac6f1697702529a8be55022126ca3742e",
    "kafka-server-common-4.2.0.jar": "e99890e8e09784e4d84f9295db4012c73cde6c2cddba0a4e104cb102e18e4aa0",
    "kafka-share-coordinator-4.2.0.jar": "0f5f3e3561c8102a4f45399d028a36e70e7947cb1393cd98394e22ed7618852e",
    "kafka-storage-4.2.0.jar": "46316f7e8b3be51d83e0f2be63f6f4e61d7f19df1379fd0efe74c14c10582082",
    "kafka-storage-api-4.2.0.jar": "188cf7523cf3684913c645007b8e442b3934badfbf9082a3a0572172cc9f1214",
    "kafka-tools-4.2.0.jar": "6b88f3f0799c585b5121d9f710e448cd365d4cfd55ff3ab5d2d81f52ae59030d",
    "kafka-tools-api-4.2.0.jar": "0b0b73e897dfe87c2505695d72cacc5239aa15e9c8302ac918dc0705c30e70e9",
    "kafka-transaction-coordinator-4.2.0.jar": "1f337382004c3f0213845af939564aeb87f5973d0cce42b912e2d5b8dcf80b69",
    "kafka_2.13-4.2.0.jar": "0490bc0a8675f9217c52b788c8a586f692ad5ae34a50a3ed370d2533b01bdbcb",
    "lz4-java-1.10.1.jar": "a58a84c4271e50df4c96ed916ccb7e48a869f8ed9cdcda1ad5d3d4c33b0214a3",
    "scala-library-2.13.17.jar": "b7822c4225243215f185925724a6edff92cf18777a136cc738276c4446fac76c",
    "scala-reflect-2.13.17.jar": "734533897bcfabe7a6e7fa09dbee165b257b0396e14e8a57c75111db8e04bb98",
}
"""Name of a jar -> its SHA-256 in hexadecimal."""
